"""Print what the adapters of Transformers and DeepSpeed say about checkpointing on mps."""

import json
import warnings

import accel_core
from accel_train.deepspeed._limits import missing_features
from accel_train.transformers import _warn_about_checkpointing

acc = accel_core.get_accelerator()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    _warn_about_checkpointing(acc)
print(
    json.dumps(
        {
            "warnings of Transformers": [str(warning.message) for warning in caught],
            "limits for DeepSpeed": missing_features(acc),
        }
    )
)
