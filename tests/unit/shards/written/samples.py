"""The samples of the sets in this folder, by number: what the writers were given, and what is to be read."""

import io
from decimal import Decimal

import numpy as np
from PIL import Image

COUNT = 5
MDS_COLUMNS = {
    "array": "ndarray:float32:2,3", "bytes": "bytes", "float": "float32", "float64": "float64", "int": "int",
    "jpeg": "jpeg", "jpegs": "jpeg_array", "json": "json", "listed": "list[png]", "pickled": "pkl", "pil": "pil",
    "png": "png", "shaped": "ndarray", "text": "str", "text_decimal": "str_decimal", "text_float": "str_float",
    "text_int": "str_int", "typed": "ndarray:uint16", "uint8": "uint8", "raws": "list[pil]",
}  # fmt: skip


def picture(number, mode="RGB"):
    return Image.new(mode, (5, 4), (number * 10, 7, 9) if mode == "RGB" else number)


def jpeg(number):
    file = io.BytesIO()
    picture(number).save(file, "jpeg")
    return file.getvalue()


def mds(number):
    return {
        "array": np.full((2, 3), number, np.float32), "bytes": bytes([number]) * number, "float": number / 2,
        "float64": number / 3, "int": number, "jpeg": picture(number), "jpegs": [jpeg(number)], "json": {"n": [number]},
        "listed": [picture(number), picture(number + 1)], "pickled": {"n": number}, "pil": picture(number, "L"),
        "png": picture(number), "shaped": np.arange(number + 1, dtype=np.int16), "text": f"text {number}",
        "text_decimal": Decimal(number) / 8, "text_float": number / 7, "text_int": 10**number,
        "typed": np.arange(2 * number + 2, dtype=np.uint16).reshape(2, number + 1), "uint8": number,
        "raws": [picture(number, "L")],
    }  # fmt: skip


def tree(number, tensor):
    """Of LitData; ``tensor`` makes one of an array."""
    return {
        "int": number, "float": number / 3, "text": f"text {number}", "bytes": bytes([number]) * number,
        "tensor": tensor(np.full((2, 3), number, np.float32)), "vector": tensor(np.arange(number + 1)),
        "numpy": np.full((2, 2), number, np.int32), "numbers": np.arange(number + 1, dtype=np.uint16),
        "pil": picture(number), "bool": bool(number % 2), "nested": [number, (number, {"z": f"{number}"})],
        "none": Opaque(number),
    }  # fmt: skip


class Opaque:
    """LitData pickles it."""

    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        return self.number == other.number

    __hash__ = None


def flat(number):
    return {"text": f"text {number}", "n": number, "x": number / 4}


def lists(number):
    """LitData has a form of its own for these."""
    return {
        "texts": [f"t{number}"] * number, "whole": [number, 1 << 40], "halves": [number / 2], "flags": [True, False],
        "rows": [{"who": "ä", "n": number, "x": 0.5, "is": True, "no": None}] * number, "mixed": [1, "a", [2]],
        "within": {"a": {"b": [1]}, "c": None},
    }  # fmt: skip


def pair(number, tensor):
    return tensor(np.arange(6).reshape(2, 3) + number), number


def leaf(number):
    return np.full(5, number, np.float32)


def tokens(number):
    return np.arange(number * 7, number * 7 + 7, dtype=np.int32)
