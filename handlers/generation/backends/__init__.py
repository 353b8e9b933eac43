"""The back ends that generate texts side by side, and the processes of two of them."""
