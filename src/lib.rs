#![doc = "Portcullis: the gang gate for GPU clusters. See `src/ARCHITECTURE.md`."]
