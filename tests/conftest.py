from __future__ import annotations

import hypothesis

hypothesis.settings.register_profile(
    "regard",
    deadline=None,  # the first example pays for warming up; a shared machine stalls
    max_examples=25,
    derandomize=True,  # a failure is the change's doing, not the draw's
    phases=set(hypothesis.Phase) - {hypothesis.Phase.explain},  # which takes minutes through torch
)
hypothesis.settings.load_profile("regard")
