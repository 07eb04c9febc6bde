"""The training loader inside Lightning: continues at the image where a checkpoint was written."""

from __future__ import annotations

from collections.abc import Callable

import lightning as L
import torch

from lucid_yolo.data.batch import Batch
from lucid_yolo.data.loader import TrainLoader
from lucid_yolo.engine.transfer import Transfer, copy_in_order


class TrainData(L.LightningDataModule):
    """Hands the fit its one training loader.

    Args:
        loader: batches of an epoch at each ``iter()``.
        look: is shown each batch while it is still on the host.

    Attributes:
        transfer: copies a batch to the device.
    """

    def __init__(self, loader: TrainLoader, look: Callable[[Batch], None]) -> None:
        super().__init__()
        self.loader = loader
        self._look = look
        self.transfer: Transfer = copy_in_order

    def on_before_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Batch:
        """Show the batch to who wants to draw it."""
        self._look(batch)
        return batch

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """Copy a batch to the device."""
        return self.transfer(batch, device)

    def train_dataloader(self) -> TrainLoader:
        """Set the loader to the position of the restored loop.

        Checkpoints are written at two places only: inside an epoch (its batches so far are counted) and at an epoch's
        end (the epoch is counted, and its batches still stand).
        """
        assert self.trainer is not None
        loop = self.trainer.fit_loop
        epoch: int = loop.epoch_progress.current.processed  # type: ignore[attr-defined]
        batch: int = loop.epoch_loop.batch_progress.current.processed  # type: ignore[attr-defined]
        self.loader.start_at(epoch, batch if batch < len(self.loader) else 0)
        return self.loader
