"""What attention is said to do, as experiments that end in a picture."""
