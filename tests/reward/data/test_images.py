"""load_image and image_key: every carrier, every awkward format, every kind of broken file."""

import os
import struct
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps
from PIL.PngImagePlugin import PngInfo

from reward.data.drawn_images import BoxedImage
from reward.data.images import image_key, image_names, load_image, plain_image
from reward.errors import ImageError


def encoded(image, kind="PNG", **options):
    buffer = BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.fixture
def photo():
    """Every pixel of its own colour, so that a wrong turn or channel order shows."""
    rows, columns = np.mgrid[0:6, 0:9]
    return Image.fromarray(np.stack([rows * 40, columns * 25, rows + columns], axis=-1).astype(np.uint8))


def test_every_carrier_gives_the_same_pixels_and_the_same_key_and_other_images_another(photo, tmp_path):
    data, path, pixels = encoded(photo), tmp_path / "photo.png", np.array(photo)
    path.write_bytes(data)
    encoded_forms = [path, str(path), data, bytearray(data), memoryview(data), BytesIO(data), [data]]
    encoded_forms += [{"bytes": data, "path": "name/on/another/machine.png"}, {"bytes": None, "path": str(path)}]
    decoded_forms = [photo, Image.open(BytesIO(data)), [photo], (pixels,)]
    for array in (pixels, pixels.transpose(2, 0, 1)):
        floats = [(array / 255).astype(kind) for kind in (np.float16, np.float32, np.float64)]
        decoded_forms += [array, *floats, torch.from_numpy(array), torch.from_numpy(array / 255).requires_grad_()]
    for forms in (encoded_forms, decoded_forms):
        for form in forms:
            image = load_image(form)
            assert (image.mode, image.tobytes()) == ("RGB", photo.tobytes()), form
        (key,) = {image_key(form) for form in forms}
        assert len(key) == 64
    changed, other_shape = photo.copy(), Image.frombytes("RGB", (6, 9), photo.tobytes())
    changed.putpixel((8, 5), (1, 2, 3))
    assert len({image_key(image) for image in (photo, changed, other_shape, data, encoded(photo, "BMP"))}) == 5


@pytest.mark.parametrize("by_content", [False, True])
@given(
    sizes=st.lists(st.sampled_from([(3, 2), (2, 3), (40, 30)]), min_size=1, max_size=8),
    seed=st.integers(0, 3),
)
def test_names_of_a_call_are_equal_where_pixels_are(by_content, sizes, seed):
    rng, images = np.random.default_rng(seed), []
    for width, height in sizes:
        pixels = np.full((height, width, 3), 7, np.uint8)
        pixels[rng.integers(height), rng.integers(width), rng.integers(3)] += rng.integers(2, dtype=np.uint8)
        images.append(Image.fromarray(pixels))
    names = image_names(images, by_content=by_content)
    equal = [[np.array_equal(np.asarray(one), np.asarray(other)) for other in images] for one in images]
    assert [[one == other for other in names] for one in names] == equal


def test_many_images_that_look_alike_have_names_of_their_own():
    plots = [Image.new("RGB", (640, 480), "white") for _ in range(20)]
    for place, plot in enumerate(plots):
        plot.putpixel((place, 1), (0, 0, 0))
    names = image_names([*plots, *(plot.copy() for plot in plots)])
    assert (names[:20], len(set(names))) == (names[20:], 20)


def test_relative_paths_start_from_root(photo, tmp_path):
    (tmp_path / "run:" / "1").mkdir(parents=True)
    photo.save(tmp_path / "run:" / "1" / "a.png")
    for name in ("run:/1/a.png", "run://1/a.png"):  # which looks like an address
        assert load_image(name, root=tmp_path).size == (9, 6)
        assert load_image({"bytes": None, "path": name}, root=str(tmp_path)).size == (9, 6)
        assert load_image(tmp_path / name, root="/elsewhere").size == (9, 6)
        assert image_key(name, root=tmp_path) == image_key(tmp_path / name)


def test_what_is_read_is_left_as_it_was(photo):
    stream, palette = BytesIO(encoded(photo)), photo.quantize(8)
    stream.seek(7)  # and still it is read from its beginning
    before = palette.mode, palette.tobytes()
    assert load_image(stream).tobytes() == photo.tobytes()
    assert (stream.tell(), load_image(palette).mode, (palette.mode, palette.tobytes())) == (7, "RGB", before)
    assert load_image(photo) is photo


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(photo, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(photo, exif=exif)
    expected = ImageOps.exif_transpose(Image.open(BytesIO(data)))
    for form in (data, Image.open(BytesIO(data))):
        loaded = load_image(form)
        assert (loaded.size, loaded.tobytes()) == (expected.size, expected.tobytes())


def test_exif_data_that_cannot_be_written_back_lose_no_photo(photo):
    """Pillow turns an image and writes its EXIF data anew, which fails on a resolution given as text."""
    tags = [struct.pack("<HHIHH", 0x0112, 3, 1, 6, 0), struct.pack("<HHI4s", 0x011A, 2, 3, b"72\0\0")]
    exif = b"Exif\0\0II*\0" + struct.pack("<IH", 8, len(tags)) + b"".join(tags) + struct.pack("<I", 0)
    data = encoded(photo, "PNG", exif=exif)
    expected = photo.transpose(Image.Transpose.ROTATE_270)
    for form in (data, Image.open(BytesIO(data)), load_image(data), plain_image(data)):
        assert load_image(form).tobytes() == expected.tobytes()
    assert ImageOps.exif_transpose(load_image(data)).tobytes() == expected.tobytes()  # the next reader turns no more
    broken = encoded(photo, "PNG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert load_image(broken).tobytes() == photo.tobytes()


def test_a_long_text_in_a_png_does_not_matter(photo):
    texts = PngInfo()
    texts.add_text("workflow", "x" * 2**21, zip=True)
    data = encoded(photo, pnginfo=texts)
    assert load_image(data).tobytes() == photo.tobytes()
    assert len(plain_image(data)["bytes"]) < 2**20  # which Pillow opens under its usual limit, too


@pytest.mark.parametrize(
    ("mode", "kind", "plain"),
    [
        *(("I;16", "PNG", False), ("I", "TIFF", False), ("RGBA", "PNG", False), ("LA", "PNG", False)),
        *(("L", "PNG", True), ("RGB", "JPEG", True), ("CMYK", "JPEG", True), ("P", "GIF", True), ("1", "PNG", True)),
    ],
)
def test_plain_images_are_those_that_every_reader_sees_alike(mode, kind, plain, tmp_path):
    image = Image.new(mode, (4, 4), 120 if mode in ("I;16", "I", "L", "P", "1") else tuple([50] * len(mode)))
    data, path = encoded(image, kind), tmp_path / "image"
    path.write_bytes(data)
    for form in (data, str(path), {"bytes": data, "path": None}, {"bytes": None, "path": str(path)}):
        made = plain_image(form)
        assert (made is form) == plain
        seen = Image.open(BytesIO(data if plain else made["bytes"])).convert("RGB")
        assert seen.tobytes() == load_image(data).tobytes()


def palette():
    """A transparent pixel, and one of another colour."""
    image = Image.new("P", (2, 1), 0)
    image.putpalette([0, 0, 0, 10, 200, 30])
    image.putpixel((1, 0), 1)
    return image


def animation(kind, **options):
    red, *others = [Image.new("RGB", (2, 2), colour) for colour in ("red", "lime", "blue")]
    return encoded(red, kind, save_all=True, append_images=others, duration=50, **options)


GREY = np.array([[0, 77, 255, 5, 6], [1, 2, 3, 4, 5]], dtype=np.uint8)
SIXTEEN_BITS = np.array([[0, 257, 32768, 65535]], dtype=np.uint16)


@pytest.mark.parametrize(
    ("image", "pixel", "colour"),
    [
        *[(form, (1, 0), (77, 77, 77)) for form in (GREY, GREY[None], GREY[:, :, None], GREY / 255)],
        (np.zeros((4, 2, 5), dtype=np.uint8), (4, 1), (255, 255, 255)),  # transparent black
        (torch.full((3, 4, 5), 0.5, dtype=torch.bfloat16), (4, 3), (128, 128, 128)),
        *[(animation(kind), (0, 0), (255, 0, 0)) for kind in ("GIF", "PNG")],
        (animation("WEBP", lossless=True), (0, 0), (255, 0, 0)),
        *[(encoded(Image.fromarray(SIXTEEN_BITS)), (x, 0), (grey,) * 3) for x, grey in enumerate((0, 1, 128, 255))],
        *[(BoxedImage(Image.new("RGB", (9, 9)), [0, 0, 9, 9]), edge, (255, 0, 0)) for edge in ((0, 0), (8, 4), (4, 8))],
        (Image.new("RGBA", (3, 3), (0, 0, 0, 128)), (1, 1), (127, 127, 127)),
        (encoded(Image.new("RGBA", (3, 3), (0, 0, 255, 255))), (1, 1), (0, 0, 255)),
        (encoded(Image.new("LA", (3, 3), (0, 0))), (1, 1), (255, 255, 255)),
        *[(encoded(palette(), transparency=0), (x, 0), colour) for x, colour in enumerate([(255,) * 3, (10, 200, 30)])],
        (encoded(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=95), (8, 8), (255, 0, 0)),
    ],
)
def test_pixels_are_those_of_a_viewer_on_a_white_page(image, pixel, colour):
    loaded = load_image(image)
    assert (loaded.mode, loaded.getpixel(pixel)) == ("RGB", colour)


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's own, about the damage
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP"])
def test_every_cut_of_a_file_is_an_image_or_an_image_error(kind, photo):
    data = encoded(photo, kind)
    for length in range(0, len(data), 7):
        with suppress(ImageError):
            assert load_image(data[:length]).mode == "RGB"


def test_the_pixel_limit_is_the_callers_to_set(photo):
    assert load_image(encoded(photo), max_pixels=54).size == (9, 6)
    for form in (encoded(photo), photo, np.asarray(photo)):
        with pytest.raises(ImageError, match="9 x 6 is over the limit of 53"):
            load_image(form, max_pixels=53)


@pytest.fixture
def odd_files(photo, tmp_path):
    """A folder of files that are no whole images."""
    os.mkfifo(tmp_path / "pipe")  # reading it would never end
    (tmp_path / "notes.png").write_text("This is not an image.")
    (tmp_path / "empty.png").touch()
    cut = encoded(photo.resize((300, 200)), "JPEG")
    (tmp_path / "cut.jpg").write_bytes(cut[: len(cut) // 2])
    with (tmp_path / "film.png").open("wb") as film:
        film.truncate(3 * 2**30)  # takes no space on the disk
    return tmp_path


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(
    ("image", "message"),
    [
        *[(path, "does not exist") for path in ("nowhere.png", "nul\0byte.png", "x" * 5_000)],
        *[(path, "is not a regular file") for path in ("../.", "pipe", "/dev/zero")],
        ("notes.png", r"notes\.png' is not an image of a supported format"),
        ("cut.jpg", r"cut\.jpg' cannot be decoded: .*truncated"),
        ("film.png", r"has 3221225472 bytes, over the limit of 1024000000"),
        *[(empty, "is empty") for empty in ("empty.png", BytesIO(), {"bytes": b"", "path": None})],
        *[(empty, "needs 'bytes' or 'path'") for empty in ({"bytes": None, "path": None}, {"url": "a.png"})],
        (encoded(Image.new("RGB", (4, 4)), "EPS"), "not an image of a supported format"),  # decoding it runs a program
        *[(b"P4\n%d %d\n" % (side, side), "too many pixels") for side in (9_000, 60_000)],
        *[(place, "is an address and nothing is downloaded") for place in ("HTTP://a/a.png", "s3://a/a.png")],
        ({"path": Path("gs://a/a.png")}, "is an address and nothing is"),
        ({"path": "data:image/png;a"}, "the image's data URL has no comma"),
    ],
)
def test_what_holds_no_image_is_refused(image, message, odd_files):
    with pytest.raises(ImageError, match=message):
        load_image(image, root=odd_files)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        *[(value, f"got {type(value).__name__}") for value in (None, 3)],
        *[(many, f"one image, got a list of {len(many)}") for many in ([], ["a.png", "b.png"], [[0, 0, 0]] * 7)],
        (Image.new("RGB", (0, 5)), "no pixels"),
        (Image.new("F", (2, 2)), "convert it to 8 bits"),
        (np.zeros((1, 3, 8, 8), np.uint8), r"of shape \(1, 3, 8, 8\) and type uint8 is a batch: give one image"),
        (np.zeros((3, 8, 3), np.uint8), "could have its channels first or last"),
        *[(np.zeros(shape, np.uint8), "is not an image: its shape must be") for shape in ((8, 8, 2), 8)],
        (np.zeros((0, 8, 3), np.uint8), "has no pixels"),
        *[(BoxedImage(Image.new("RGB", (9, 9)), box), "inside the image of 9 x 9") for box in ([5, 5, 7, 2], "all")],
        *[(np.zeros((8, 8), kind), "is not an image: its type must be uint8") for kind in (np.int64, bool, object)],
        (np.full((8, 8, 3), 255.0), "values from 255 to 255: floats must lie in"),
        (torch.full((3, 8, 8), -0.1), "Undo a normalisation of pixels"),
        (np.full((8, 8, 3), np.nan), "values from nan to nan"),
        (torch.zeros(3, 8, 8, device="meta"), "cannot be read as an array"),
    ],
)
def test_what_may_be_something_else_has_no_key_either(image, message):
    for read in (load_image, image_key):
        with pytest.raises(ImageError, match=message):
            read(image)


def test_streams_that_give_no_bytes_are_refused():
    closed, (reading, writing) = BytesIO(), os.pipe()
    closed.close()
    with Path(__file__).open() as text, os.fdopen(reading, "rb") as pipe, os.fdopen(writing, "wb"):
        for stream, message in ((closed, "closed file"), (text, "open it with 'rb'"), (pipe, "give its bytes")):
            with pytest.raises(ImageError, match=message):
                load_image(stream)
