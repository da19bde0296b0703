from __future__ import annotations

import pytest
import torch

torch.set_num_threads(1)  # toys are too small to share; two threads would wait for each other


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    torch.manual_seed(0)
