"""OpenVLA with OFT's parallel decoding as a policy to post-train: built from transformers' classes, with LoRA."""
