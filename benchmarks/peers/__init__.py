"""What we are compared with, written as its users would write it."""
