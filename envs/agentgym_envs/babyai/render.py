"""Pictures of the grid for viewers, drawn only on request."""

import base64
import struct
import zlib

import numpy as np

from agentgym_envs.babyai.world import World


def png_data_uri(world: World) -> str:
    """Draws the whole grid with the agent's view highlighted; returns `data:image/png;...`."""
    frame = world.get_frame(highlight=world.highlight, tile_size=world.tile_size)
    return "data:image/png;base64," + base64.b64encode(png(frame)).decode("ascii")


def png(pixels: np.ndarray) -> bytes:
    """Encodes pixels, uint8 [height, width, 3], as a PNG file (RGB, no interlacing, no filter)."""
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
        raise ValueError(
            f"png: expected uint8 [height, width, 3], got {pixels.dtype} {pixels.shape}"
        )
    height, width, _ = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits, RGB
    # each row starts with its filter type; 0 is no filter
    rows = np.zeros((height, 1 + 3 * width), np.uint8)
    rows[:, 1:] = pixels.reshape(height, 3 * width)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", header),
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), level=6)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)
