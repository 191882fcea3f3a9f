"""Small worlds in which everything that can happen is made to happen."""
