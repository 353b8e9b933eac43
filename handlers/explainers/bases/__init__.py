"""What explanations of texts, of images and of generated texts have in common."""
