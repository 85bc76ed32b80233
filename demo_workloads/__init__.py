"""Jobs that show each fault before and after; they stand for a user's code and import nothing of ours."""
