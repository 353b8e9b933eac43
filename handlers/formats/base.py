"""What every format declares."""
