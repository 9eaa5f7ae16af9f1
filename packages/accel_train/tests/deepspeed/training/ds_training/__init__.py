"""What the training tests run: a small transformer on real text, in two ranks, under DeepSpeed."""
