"""A run that takes seconds: a few small drawn pictures, a few steps."""

TINY = [
    "data=shapes",
    "data.options.num_train=14",
    "data.options.num_val=6",
    "data.options.image_size=96",
    "data.image_size=96",
    "data.batch_size=4",
    "data.num_workers=0",
    "data.augment.mosaic=0.5",
    "data.augment.close_mosaic=1",
    "data.recipe.epochs=4",
    "data.recipe.val_every=4",
    "model.variant=tiny",  # as many layers as n, of a quarter of its width
    "model.width=0.0625",
    "trainer.accelerator=cpu",
    "trainer.log_every=3",
    "logger.pictures=false",
    "logger.tensorboard=false",
]
NANO = ("model.variant=n", "model.width=0.25")  # with the width of n
SHORT = ("trainer.max_epochs=1", "trainer.max_steps=2")  # where it matters only that it trains


def tiny_overrides(*changes: str) -> list[str]:
    """The tiny run with changes; a changed key stands once."""
    return list({line.partition("=")[0]: line for line in (*TINY, *changes)}.values())
