"""Pictures of a run, drawn beside the training on a thread of their own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from lucid_yolo.data.batch import Batch
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.engine.run_dir import RunDir

NUM_BATCHES = 3


class PictureWriter:
    """Draws in the background; a picture that fails never costs the run, it is named at the end."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pictures")
        self._pending: list[tuple[str, Future[Any]]] = []

    def submit(self, name: str, draw: Callable[[], Any]) -> None:
        """Draw something soon."""
        self._pending.append((name, self._pool.submit(draw)))

    def finish(self) -> list[str]:
        """Wait for what was submitted; return one sentence for each picture that could not be drawn."""
        try:
            self._pool.shutdown(wait=True)
        except KeyboardInterrupt:
            self._pool.shutdown(wait=False, cancel_futures=True)
            return ["Drawing was stopped; some pictures are missing."]
        failed = []
        for name, future in self._pending:
            error = future.exception()
            if error is not None:
                failed.append(f"picture {name} could not be drawn: {error}")
        self._pending.clear()
        return failed


class BatchPictures:
    """Keeps label statistics and the first training batches of a run as pictures.

    Args:
        writer: who draws.
        run_dir: where to.
        index: training split.
        num_batches: how many batches; 0 for no pictures at all.
    """

    def __init__(self, writer: PictureWriter, *, run_dir: RunDir, index: SplitIndex, num_batches: int) -> None:
        self._writer = writer
        self._folder = run_dir.pictures
        self._index = index
        self._num_batches = num_batches
        self._drawn = 0

    def take(self, batch: Batch) -> None:
        """Draw a batch that is still on the host, while there are pictures left to make."""
        if self._drawn >= self._num_batches:
            return
        from lucid_yolo.viz.report import write_label_picture, write_training_picture  # noqa: PLC0415 - matplotlib

        if self._drawn == 0:
            self._writer.submit("labels", lambda: write_label_picture(self._folder, self._index))
        self._drawn += 1
        name = f"train_batch_{self._drawn}"
        self._writer.submit(name, lambda: write_training_picture(self._folder, self._index, batch, name=name))
