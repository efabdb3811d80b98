"""The command that writes decoding strategies; apart from `hf_generate`, so that the help loads no torch."""
