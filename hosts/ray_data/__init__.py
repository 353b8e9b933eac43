"""Archives on files of rows, with Ray Data.

Files are planned as chunks (`chunks.py`); actors with the archive's engine score chunks
(`scorer.py`), each to one file (`results.py`); `job.py` runs what is missing.
"""
