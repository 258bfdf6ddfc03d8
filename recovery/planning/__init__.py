"""Planning: from standing effects to a plan that people can read, and its submission."""
