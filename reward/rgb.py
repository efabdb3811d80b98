"""Pixels of any shape, type and mode as 8-bit RGB, and turned upright."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reward.errors import ImageError

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["exif_is_sound", "flattened", "from_array", "upright"]

_EXIF_ORIENTATION = 0x0112
_CHANNELS = (1, 3, 4)  # grey, RGB, RGB with transparency


def from_array(array: Any) -> Image.Image:
    """An array of pixels as a PIL image; see `reward.images.load_image` for shapes and ranges."""
    import numpy as np
    from PIL import Image

    try:
        if hasattr(array, "detach"):  # a torch tensor: perhaps with gradients, on another device, or in bfloat16
            array = array.detach().cpu()
            array = array.float() if array.is_floating_point() else array
        pixels = np.asarray(array)
    except Exception as error:  # for example tensors on the device "meta"
        raise ImageError(f"image of type {type(array).__name__} cannot be read as an array: {error}") from error
    name = f"image array of shape {pixels.shape} and type {pixels.dtype}"
    if pixels.ndim > 3:
        raise ImageError(f"{name} is a batch: give one image of it, such as batch[0]")
    if pixels.size == 0:
        raise ImageError(f"{name} has no pixels")
    if pixels.ndim == 3:
        first, last = pixels.shape[0] in _CHANNELS, pixels.shape[2] in _CHANNELS
        if first and last:
            raise ImageError(f"{name} could have its channels first or last: give a PIL image, Image.fromarray(array)")
        pixels = np.moveaxis(pixels, 0, 2) if first else pixels
    if pixels.ndim < 2 or (pixels.ndim == 3 and pixels.shape[2] not in _CHANNELS):
        raise ImageError(f"{name} is not an image: its shape must be (H, W), (H, W, 3) or (3, H, W)")
    if np.issubdtype(pixels.dtype, np.floating):
        levels = np.rint(pixels.astype(np.float32) * 255)
        if not (levels.min() >= 0 and levels.max() <= 255):
            raise ImageError(
                f"{name} has values from {pixels.min():.4g} to {pixels.max():.4g}: floats must lie in [0, 1]. Undo a "
                "normalisation of pixels, or give levels of 0 to 255 as uint8"
            )
        pixels = levels.astype(np.uint8)
    if pixels.dtype != np.uint8:
        raise ImageError(f"{name} is not an image: its type must be uint8, or float with values in [0, 1]")
    return Image.fromarray(np.ascontiguousarray(pixels[:, :, 0] if pixels.shape[2:] == (1,) else pixels))


def upright(image: Image.Image) -> Image.Image:
    """The pixels turned by the EXIF orientation, and by nothing else of the EXIF data, whatever state it is in."""
    from PIL import Image

    turn = Image.Transpose
    turns: list[Any] = [None, None, turn.FLIP_LEFT_RIGHT, turn.ROTATE_180, turn.FLIP_TOP_BOTTOM]  # by the orientation
    turns += [turn.TRANSPOSE, turn.ROTATE_270, turn.TRANSVERSE, turn.ROTATE_90]
    try:
        orientation: Any = image.getexif().get(_EXIF_ORIENTATION)
    except Exception:  # broken EXIF data make Pillow raise nearly any exception, and say nothing of the pixels
        return image
    if orientation not in range(2, len(turns)):
        return image
    image = image.transpose(turns[int(orientation)])
    for key in ("exif", "Raw profile type exif", "XML:com.adobe.xmp", "xmp"):  # or the next reader turns it again
        image.info.pop(key, None)
    return image


def exif_is_sound(image: Image.Image) -> bool:
    """Whether readers that write the EXIF data back when they turn an image, as Pillow's own function does, succeed."""
    try:
        exif = image.getexif()
        if exif.get(_EXIF_ORIENTATION, 1) != 1:
            exif.tobytes()
    except Exception:  # see `upright`
        return False
    return True


def flattened(image: Image.Image) -> Image.Image:
    """Any mode to RGB, with transparency over white."""
    from PIL import Image

    if image.mode == "F":
        raise ImageError("an image of floats has no agreed range; convert it to 8 bits first")
    if image.mode.startswith("I"):  # 16-bit grey, which Pillow also opens as 32-bit integers
        import numpy as np

        grey = np.clip(np.asarray(image).astype(np.int64), 0, 65535)
        image = Image.fromarray(((grey * 255 + 32767) // 65535).astype(np.uint8))
    if image.has_transparency_data:
        coloured = image.convert("RGBA")
        page = Image.new("RGBA", coloured.size, "white")
        return Image.alpha_composite(page, coloured).convert("RGB")
    if image.mode == "RGB":
        return image
    return image.convert("RGB")
