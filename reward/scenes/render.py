"""Draws a scene with Pillow: 96 x 96 pixels, a 3 x 3 grid of cells, so that cells lie on the patches of a small ViT."""

from __future__ import annotations

import math
import random

from PIL import Image, ImageDraw

from reward.scenes.graph import GRID, Action, Entity, Scene

CELL = 32
IMAGE_SIZE = CELL * GRID

_PAINT = {
    "red": (214, 40, 40),
    "green": (30, 132, 60),
    "blue": (36, 78, 204),
    "yellow": (246, 214, 40),
    "purple": (134, 52, 160),
    "orange": (242, 130, 24),
}
_GROUND = {
    "field": (190, 226, 170),
    "beach": (236, 220, 178),
    "sea": (168, 214, 236),
    "night": (44, 46, 78),
    "snow": (244, 246, 250),
}
# Agent to patient: a line in a colour and style that no entity has, with a head at the patient.
_ARROW = {"chase": (0, 0, 0), "push": (255, 255, 255), "pull": (0, 220, 220), "guard": (255, 90, 180)}
# A 4 x 6 pixel font with the letters of the signs, so that no installed font changes a picture.
_FONT = {
    "A": "0110 1001 1001 1111 1001 1001",
    "B": "1110 1001 1110 1001 1001 1110",
    "C": "0111 1000 1000 1000 1000 0111",
    "E": "1111 1000 1110 1000 1000 1111",
    "F": "1111 1000 1110 1000 1000 1000",
    "I": "1110 0100 0100 0100 0100 1110",
    "K": "1001 1010 1100 1100 1010 1001",
    "L": "1000 1000 1000 1000 1000 1111",
    "N": "1001 1101 1101 1011 1011 1001",
    "O": "0110 1001 1001 1001 1001 0110",
    "P": "1110 1001 1001 1110 1000 1000",
    "R": "1110 1001 1001 1110 1010 1001",
    "S": "0111 1000 0110 0001 0001 1110",
    "T": "1110 0100 0100 0100 0100 0100",
    "X": "1001 1001 0110 0110 1001 1001",
}


def render(scene: Scene) -> Image.Image:
    """Draws a scene; the same scene always gives the same pixels.

    Returns:
        RGB image of 96 x 96 pixels.

    Example:
        >>> from reward.scenes.graph import sample_scene
        >>> render(sample_scene(random.Random(0))).size
        (96, 96)
    """
    rng = random.Random(scene.to_json())
    image = Image.new("RGB", (IMAGE_SIZE, IMAGE_SIZE), _GROUND[scene.background])
    draw = ImageDraw.Draw(image)
    _draw_ground(draw, scene.background, rng)
    if scene.sign:
        _draw_sign(draw, scene.sign.word, scene.sign.cell)
    for entity in scene.entities:
        _draw_entity(image, entity, rng)
    if scene.action:
        _draw_arrow(draw, scene, scene.action)
    return image


def _centre(cell: int) -> tuple[float, float]:
    row, column = divmod(cell, GRID)
    return (column + 0.5) * CELL, (row + 0.5) * CELL


def _draw_ground(draw: ImageDraw.ImageDraw, background: str, rng: random.Random) -> None:
    shade = {
        "field": (150, 200, 130),
        "beach": (216, 196, 150),
        "sea": (130, 184, 220),
        "night": (220, 220, 160),
        "snow": (214, 222, 236),
    }
    for _ in range(26):
        x, y = rng.randrange(IMAGE_SIZE), rng.randrange(IMAGE_SIZE)
        if background == "field":
            draw.line((x, y, x, y - 3), fill=shade[background])
        elif background == "sea":
            draw.line((x, y, x + 5, y), fill=shade[background])
        else:
            draw.point((x, y), fill=shade[background])


def _draw_sign(draw: ImageDraw.ImageDraw, word: str, cell: int) -> None:
    x, y = _centre(cell)
    draw.rectangle((x - 14, y - 8, x + 13, y + 5), fill=(250, 250, 250), outline=(60, 60, 60), width=1)
    draw.rectangle((x - 1, y + 6, x, y + 13), fill=(96, 64, 32))
    for index, letter in enumerate(word):
        for line, bits in enumerate(_FONT[letter].split()):
            for column, bit in enumerate(bits):
                if bit == "1":
                    draw.point((x - 11 + index * 6 + column, y - 4 + line), fill=(0, 0, 0))


def _draw_entity(image: Image.Image, entity: Entity, rng: random.Random) -> None:
    x, y = _centre(entity.cell)
    is_big = entity.size == "big"
    if entity.count == 1:
        radius = 12.0 if is_big else 7.0
        centres = [(x + rng.randint(-2, 2), y + rng.randint(-2, 2))]
    else:  # a group stands around the centre, each one smaller, so that four fit into a cell
        radius = 7.0 if is_big else 4.5
        step = 7.5
        corners = ((-1, -1), (1, 1), (1, -1), (-1, 1))
        centres = [(x + dx * step, y + dy * step) for dx, dy in corners[: entity.count]]
    for centre in centres:
        _draw_shape(image, entity, centre, radius)


def _draw_shape(image: Image.Image, entity: Entity, centre: tuple[float, float], radius: float) -> None:
    # A painted sheet shows through a mask of the shape, so that stripes and dots end at its edge.
    mask = Image.new("L", image.size, 0)
    _shape_mask(ImageDraw.Draw(mask), entity.noun, centre[0], centre[1], radius)
    paint = Image.new("RGB", image.size, _PAINT[entity.colour])
    pen = ImageDraw.Draw(paint)
    left, top = int(centre[0] - radius), int(centre[1] - radius)
    if entity.pattern == "striped":
        for offset in range(0, int(4 * radius), 4):
            pen.line((left + offset - 1, top, left - 1, top + offset), fill=(255, 255, 255), width=1)
    elif entity.pattern == "dotted":
        for dy in range(1, int(2 * radius) + 1, 4):
            for dx in range(1, int(2 * radius) + 1, 4):
                pen.rectangle((left + dx, top + dy, left + dx + 1, top + dy + 1), fill=(16, 16, 16))
    image.paste(paint, (0, 0), mask)


def _shape_mask(draw: ImageDraw.ImageDraw, noun: str, x: float, y: float, r: float) -> None:
    box = (x - r, y - r, x + r, y + r)
    if noun == "circle":
        draw.ellipse(box, fill=255)
    elif noun == "ring":
        draw.ellipse(box, fill=255)
        draw.ellipse((x - r * 0.5, y - r * 0.5, x + r * 0.5, y + r * 0.5), fill=0)
    elif noun == "square":
        draw.rectangle((x - r * 0.9, y - r * 0.9, x + r * 0.9, y + r * 0.9), fill=255)
    elif noun == "triangle":
        draw.polygon([(x, y - r), (x + r, y + r * 0.9), (x - r, y + r * 0.9)], fill=255)
    elif noun == "star":
        points = []
        for k in range(10):
            angle = -math.pi / 2 + k * math.pi / 5
            reach = r * 1.1 if k % 2 == 0 else r * 0.45
            points.append((x + reach * math.cos(angle), y + reach * math.sin(angle)))
        draw.polygon(points, fill=255)
    else:  # heart
        draw.ellipse((x - r, y - r, x, y + r * 0.1), fill=255)
        draw.ellipse((x, y - r, x + r, y + r * 0.1), fill=255)
        draw.polygon([(x - r * 0.95, y - r * 0.25), (x + r * 0.95, y - r * 0.25), (x, y + r)], fill=255)


def _draw_arrow(draw: ImageDraw.ImageDraw, scene: Scene, action: Action) -> None:
    x0, y0 = _centre(scene.entity(action.agent).cell)
    x1, y1 = _centre(scene.entity(action.patient).cell)
    length = math.hypot(x1 - x0, y1 - y0)
    ux, uy = (x1 - x0) / length, (y1 - y0) / length
    start, end = (x0 + ux * 8, y0 + uy * 8), (x1 - ux * 8, y1 - uy * 8)
    colour = _ARROW[action.verb]
    outline = (120, 120, 120) if action.verb == "push" else None  # white would vanish on snow
    if outline:
        draw.line((*start, *end), fill=outline, width=4)
    if action.verb == "chase":
        steps = int(math.hypot(end[0] - start[0], end[1] - start[1]) // 4)
        for k in range(0, steps, 2):
            a, b = 4 * k, 4 * (k + 1)
            draw.line(
                (start[0] + ux * a, start[1] + uy * a, start[0] + ux * b, start[1] + uy * b), fill=colour, width=2
            )
    else:
        draw.line((*start, *end), fill=colour, width=2)
    head = 6
    base = (end[0] - ux * head, end[1] - uy * head)
    corners = [
        end,
        (base[0] - uy * head * 0.7, base[1] + ux * head * 0.7),
        (base[0] + uy * head * 0.7, base[1] - ux * head * 0.7),
    ]
    draw.polygon(corners, fill=colour, outline=outline)
    draw.ellipse((start[0] - 2, start[1] - 2, start[0] + 2, start[1] + 2), fill=colour, outline=outline)
