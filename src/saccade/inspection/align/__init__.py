"""Word alignment: links, gold, and the head that aligns best."""
