"""DeepSpeed's accelerator classes and ours, asked the same on one device.

`cases`, `memory` and `device` hold what is asked; `answers` asks both and puts what they say into text. These
run beside the device, in a process without pytest. `table` holds the answers against DIFFERENCES.md.
"""

#: The release that the table speaks of.
DEEPSPEED = "0.19.8"
