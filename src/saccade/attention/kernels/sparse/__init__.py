"""Any normaliser over dot products, without a sort, in O((T + S) D) memory."""
