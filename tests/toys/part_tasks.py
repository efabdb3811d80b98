"""What is done in parts, each as a run in a process of its own that is slow, may be stopped, and goes on."""

import multiprocessing
import os
import resource
import sqlite3
import sys
import time
from abc import ABC, abstractmethod
from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq

from integrations.ray_data import score_files
from reward.decoding.captioning import caption_images
from reward.decoding.photos import read_images
from reward.errors import CapRewardError
from reward.judges import ScriptedJudge, Usage
from reward.judges.chat import Sampled
from reward.scoring import score_dataset
from reward.scoring.readers import open_source
from reward.training.corruptions.datasets import make_corrupted
from tests.reward.scoring.small_data import read_rows, save_greys
from tests.toys.json_lines import write_lines
from tests.toys.picture_scorer import PictureScorer

ROWS = 40
PART_ROWS = 4
_forkserver = multiprocessing.get_context("forkserver")
_forkserver.set_forkserver_preload(["tests.toys.part_tasks", "datasets"])


class Task(ABC):
    """A run over the rows of `folder`; what it works on becomes lines of `folder/log`.

    Args:
        folder: of data, output and log.
    """

    output = "out.jsonl"
    at_once = PART_ROWS  # rows that a kill can cost

    def __init__(self, folder):
        self.folder = folder
        self.data, self.result = folder / "data.jsonl", folder / self.output

    def make(self):
        """Makes the data."""
        (self.folder / "log").touch()
        (self.folder / "deaths").touch()
        save_greys(self.folder)
        write_lines(self.data, [self.row(number) for number in range(ROWS)])

    def row(self, number):
        caption = {13: "fail", 38: "die"}.get(number, "word " * (number % 7) + f"c{number}")
        return {"id": number, "image": f"{number % 3}.png", "caption": caption}

    @abstractmethod
    def run(self):
        """Does all that is missing."""

    def saved(self):
        """Files of what is done, while the output is being made."""
        return list((self.folder / f"{self.output}.partial").glob("[0-9]*.gz"))

    def damage(self, content):
        """Changes a byte of what a file of `saved` holds."""
        content[len(content) // 2] ^= 1

    def progress(self):
        """How much is saved."""
        return len(self.saved())

    def rows(self):
        return read_rows(self.result)

    def log(self):
        return (self.folder / "log").read_text().splitlines()

    def write_log(self, line):
        """Called for each row by what takes its time."""
        time.sleep(float(os.environ["PICTURE_SECONDS"]))
        with (self.folder / "log").open("a") as file:
            file.write(line + "\n")

    def start(self, seconds=0.0, most_bytes=None):
        """Starts `run` in a process; its stderr goes to `folder/stderr`.

        Args:
            seconds: that each row takes.
            most_bytes: largest file that it can write, as if the disk were full.
        """
        process = _forkserver.Process(target=_in_process, args=(self, seconds, most_bytes))
        process.start()
        return process

    def start_and_wait(self, count, seconds=0.02):
        """Starts `run` slowly, until so much is saved."""
        process, limit = self.start(seconds), time.monotonic() + 60
        while self.progress() < count and process.is_alive():
            assert time.monotonic() < limit, "nothing was saved in a minute"
            time.sleep(0.005)
        return process

    def finish(self, process):
        """Waits for the end; gives exit code and stderr."""
        process.join(120)
        assert process.exitcode is not None, "it did not end"
        return process.exitcode, (self.folder / "stderr").read_text()


class Score(Task):
    def run(self):
        score_dataset(self.data, [PictureScorer(), "length"], self.result, part_rows=PART_ROWS)


class Processes(Score):
    """Two processes for a metric by name, which an entry point installs."""

    def run(self):
        plugin = self.folder / "plugin" / "picture-0.1.dist-info"
        plugin.mkdir(parents=True, exist_ok=True)
        (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: picture\nVersion: 0.1\n")
        (plugin / "entry_points.txt").write_text("[capreward.metrics]\npicture = tests.toys.picture_scorer:SPEC\n")
        sys.path.insert(0, str(plugin.parent))
        score_dataset(self.data, ["picture", "length"], self.result, part_rows=PART_ROWS, devices="cpu,cpu")


class Answers(Task):
    """Answers are kept one by one, in a file of SQLite."""

    at_once = 1
    file: str

    def saved(self):
        path = self.folder / self.file
        return [path] if path.exists() else []

    def progress(self):
        try:
            with closing(sqlite3.connect(f"file:{self.folder / self.file}?mode=ro", uri=True)) as rows:
                count = rows.execute("SELECT COUNT(*) FROM kept WHERE owner <> 'run'").fetchone()[0]
                return count
        except sqlite3.OperationalError:  # it has just been made
            return 0


class Caption(Answers):
    """It is the captioner itself."""

    file, name = "out.jsonl.partial", "model"

    def make(self):
        super().make()
        (self.folder / "photos").mkdir()
        for number in range(ROWS):
            (self.folder / "photos" / f"{number:02}.png").symlink_to(self.folder / "0.png")

    def run(self):
        self.usage = Usage()
        caption_images(read_images(self.folder / "photos"), self, self.result, metric="length", n=2)

    def check(self):
        return self.name

    def sample(self, images, n, sampling, have):
        for row, image in images:
            self.write_log(image.name)
            yield row, [Sampled(f"a star of {image.name}" + " red" * length) for length in range(n)]


class Corrupt(Answers):
    output, file = "out.parquet", ".out.parquet.answers"
    at_once = 32  # questions of a call

    def row(self, number):
        return {"image": f"{number % 3}.png", "caption": f"A red star shines on {number} green hills."}

    def run(self):
        judge = ScriptedJudge(self.answer)
        options = {"words": ["shuffle_words"], "judge": judge, "rewrites": ["noun", "count"]}
        make_corrupted(open_source(self.data), self.result, **options)

    def answer(self, question):
        caption = question.text.strip().splitlines()[-1]
        self.write_log(f"{caption} {len(question.text)}")
        return caption.replace("red", "blue").replace("green", "grey")


class Ray(Task):
    """What an actor does, in the process itself; `tests/integrations/ray_data` has a cluster."""

    output = "out"

    def make(self):
        super().make()
        table = pa.Table.from_pylist([self.row(number) for number in range(ROWS)])
        pq.write_table(table, self.folder / "data.parquet", row_group_size=PART_ROWS)

    def run(self):
        score_files(self.folder / "data.parquet", PictureScorer(), self.result, workers=0, part_rows=PART_ROWS)

    def saved(self):
        return list(self.result.glob("part-*.parquet"))

    def rows(self):
        rows = pq.read_table(self.result).to_pylist()
        return sorted(rows, key=lambda row: row["id"])


TASKS = {
    "score": Score,
    "processes": Processes,
    "caption": Caption,
    "corrupt": Corrupt,
    "ray": Ray,
}


def _in_process(task, seconds, most_bytes):
    """As the command line ends: 1 after an error that has a message, 130 after Ctrl-C."""
    for name in ("log", "deaths"):
        os.environ[f"PICTURE_{name.upper()}"] = str(task.folder / name)
    os.environ["PICTURE_SECONDS"] = str(seconds)
    with (task.folder / "stderr").open("w") as file:
        os.dup2(file.fileno(), 2)
    if most_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    try:
        task.run()
    except CapRewardError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt as error:
        print(error, file=sys.stderr)
        sys.exit(130)
