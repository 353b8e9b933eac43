"""What lies below the model's path for clients of OpenAI's API: one file an endpoint."""
