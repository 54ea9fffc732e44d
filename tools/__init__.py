"""What is run to make things: Almanac's world and model."""
