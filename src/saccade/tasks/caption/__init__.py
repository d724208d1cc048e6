"""The task of captioning: from a picture to a sentence."""
