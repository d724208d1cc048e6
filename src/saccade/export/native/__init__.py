"""An engine of our own for CPUs: a library in C that reads packed weights and searches without Python."""
