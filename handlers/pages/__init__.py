"""What is answered to people instead of programs."""
