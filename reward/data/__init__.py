"""Plain data: captions, images, scores, texts and settings, in the forms that people hold."""
