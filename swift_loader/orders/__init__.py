"""What is ordered of which worker, who holds each slot, what is delivered: all that stands under one lock."""
