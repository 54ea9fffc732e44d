"""Methods by name: a trigger, a formulator and a loop."""
