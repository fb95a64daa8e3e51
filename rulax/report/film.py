"""Films of an agent at play: pictures with a line below them that says where they are, as gif or mp4."""

from __future__ import annotations

import base64
import importlib.util
import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from rulax.errors import UserError
from rulax.evaluation.playing import Moment
from rulax.files import write_atomically
from rulax.text import plural, shown_return

FPS = 15
HOLD = 1.0  # seconds that the last picture of an episode stays
ENDINGS = (".gif", ".mp4")
LINE = 18  # height of the line below a picture
SMALLEST = 64  # side of a picture below which it is not shrunk to save bytes


class Film:
    """Episodes as pictures: `film.save("agent.gif")`, `film.returns`, and it shows itself in a notebook."""

    def __init__(self, moments: Iterable[Moment], fps: float = FPS, most: int = 0):
        """Takes all moments, or at most so many of them."""
        self.fps, self.moments = fps, []
        for moment in moments:
            self.moments.append(moment)
            if len(self.moments) == most:
                break

    @property
    def returns(self) -> list[float]:
        """Of the episodes that ended."""
        return [moment.total for moment in self.moments if moment.ended]

    @property
    def lengths(self) -> list[int]:
        """Of the episodes that ended."""
        return [moment.step for moment in self.moments if moment.ended]

    @property
    def whole(self) -> bool:
        """Whether it ends with the end of an episode."""
        return bool(self.moments) and self.moments[-1].ended

    def said(self) -> str:
        """One sentence about what is seen."""
        ended = [f"{shown_return(total)} in {plural(step, 'step')}" for total, step in zip(self.returns, self.lengths, strict=True)]
        last = self.moments[-1]
        rest = (
            []
            if self.whole
            else [f"{shown_return(last.total)} in the first {plural(last.step, 'step')} of one that is cut off here"]
        )
        return f"Return of the {plural(len(ended) + len(rest), 'episode')} shown: {', '.join([*ended, *rest])}."

    def save(self, path: str | Path) -> Path:
        """Write it; the ending of the name decides: .gif or .mp4."""
        path = Path(path)
        check_path(path)
        data = self.gif() if path.suffix == ".gif" else self.mp4()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, data)
        except OSError as error:
            raise UserError(f"{path} cannot be written: {error.strerror or error}") from None
        return path

    def gif(self, most_bytes: int = 0) -> bytes:
        """An animated gif that starts over at its end. With `most_bytes` pictures are made smaller and fewer until it fits."""
        shrink, skip = 1, 1
        while True:
            data = self._gif(shrink, skip)
            if not most_bytes or len(data) <= most_bytes:
                return data
            # Smaller pictures first: at half the size one still sees what happens.
            if min(self.moments[0].picture.shape[:2]) // (2 * shrink) >= SMALLEST:
                shrink *= 2
            else:
                skip *= 2
            if skip > len(self.moments):
                return data

    def _gif(self, shrink: int, skip: int) -> bytes:
        # The ends of episodes are never left out: they are what one waits for.
        kept = [moment for index, moment in enumerate(self.moments) if index % skip == 0 or moment.ended]
        frames = [captioned(moment, shrink).quantize(64, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE) for moment in kept]
        times = [1000 * (HOLD if moment.ended or index == len(kept) - 1 else skip / self.fps) for index, moment in enumerate(kept)]
        buffer = io.BytesIO()
        frames[0].save(
            buffer, "GIF", save_all=True, append_images=frames[1:], duration=[round(each / 10) * 10 for each in times], loop=0
        )
        return buffer.getvalue()

    def mp4(self) -> bytes:
        """A film for players and slides; made by ffmpeg, which the extra `video` brings."""
        check_mp4()
        import tempfile

        import imageio_ffmpeg

        pictures = []
        for index, moment in enumerate(self.moments):
            last = moment.ended or index == len(self.moments) - 1
            pictures += [np.asarray(captioned(moment))] * (max(1, round(HOLD * self.fps)) if last else 1)
        # Even sides, which the usual colour format needs.
        height, width = (-(-max(picture.shape[axis] for picture in pictures) // 2) * 2 for axis in (0, 1))
        with tempfile.TemporaryDirectory() as folder:
            name = str(Path(folder) / "film.mp4")
            writer = imageio_ffmpeg.write_frames(name, (width, height), fps=self.fps, macro_block_size=2, codec="libx264")
            writer.send(None)
            for picture in pictures:
                writer.send(np.ascontiguousarray(padded(picture, height, width)))
            writer.close()
            return Path(name).read_bytes()

    def _repr_html_(self) -> str:
        return f'<img src="data:image/gif;base64,{base64.b64encode(self.gif()).decode()}" alt="{self.said()}">'


def padded(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """The picture with white below and to the right."""
    rows, columns = height - picture.shape[0], width - picture.shape[1]
    return np.pad(picture, ((0, rows), (0, columns), (0, 0)), constant_values=255)


def captioned(moment: Moment, shrink: int = 1) -> Image.Image:
    """A picture with a line below it: which episode, which step, what return."""
    picture = Image.fromarray(moment.picture)
    if shrink > 1:
        picture = picture.resize((picture.width // shrink, picture.height // shrink), Image.Resampling.BOX)
    text = f"episode {moment.episode + 1} · step {moment.step} · return {shown_return(moment.total)}"
    font = ImageFont.load_default(11)
    canvas = Image.new("RGB", (max(picture.width, 190), picture.height + LINE), (255, 255, 255))
    canvas.paste(picture, ((canvas.width - picture.width) // 2, 0))
    ImageDraw.Draw(canvas).text((4, picture.height + 2), text, (31, 41, 51), font)
    return canvas


def check_path(path: str | Path) -> None:
    """Refuse a file that cannot be written as a film."""
    if Path(path).suffix not in ENDINGS:
        raise UserError(f"a film is saved in a file that ends in {' or '.join(ENDINGS)}, not in '{path}'")
    if Path(path).suffix == ".mp4":
        check_mp4()


def check_mp4() -> None:
    """Refuse where ffmpeg is missing."""
    if importlib.util.find_spec("imageio_ffmpeg") is None:
        raise UserError("mp4 needs ffmpeg, which is not installed: pip install 'rulax[video]', or save a .gif")
