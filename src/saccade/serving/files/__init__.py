"""Files in requests, decoded in memory: pictures, clips and sounds."""
