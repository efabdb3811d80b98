"""Plain data: captions, images, scores and texts, in the forms that people hold."""
