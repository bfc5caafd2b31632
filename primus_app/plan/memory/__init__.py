"""How much memory a rank needs: each term a formula that serves one layout or arrays of them."""
