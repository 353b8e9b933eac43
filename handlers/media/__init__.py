"""Files in requests that are no texts: images and audio."""
