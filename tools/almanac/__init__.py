"""Almanac's making: the world, its files, the training of its model. The package ships what comes out."""
