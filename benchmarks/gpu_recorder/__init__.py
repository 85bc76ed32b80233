"""The parts of gpu_record.py: the tape, the loads, the questions that the notes leave open."""
