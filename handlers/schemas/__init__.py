"""What a request and a served model look like, whatever the wire format."""
