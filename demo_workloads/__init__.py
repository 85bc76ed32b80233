"""Jobs that show each fault before and after; as a user's code they import nothing of ours."""
