"""Does a selector rank what rows do, or how the weights are written?"""
