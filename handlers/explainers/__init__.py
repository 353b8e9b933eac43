"""Why a model answered as it did: one file a family of Captum methods."""
