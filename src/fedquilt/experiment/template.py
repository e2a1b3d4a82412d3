"""The spec that `fedquilt new` writes."""

TEMPLATE = """\
# A fedquilt spec. Run it with:   fedquilt run {name}
# Change a value for one run:     fedquilt run {name} --set method.lr=0.05
# What there is to choose from:   fedquilt list methods   (wrappers, models, datasets, …)
# What one of them does:          fedquilt explain fed_avg_m

[run]
rounds = 50               # rounds of training
seed = 1                  # of selection, batches and initialisation; one seed gives the same model, bit for bit
eval_every = 1            # rounds between tests
# train_loss = true       # also measure the loss on the whole training set
# metrics = ["accuracy", "top5"]   # what a test measures besides the loss
# stop_at = 0.97          # stop once test accuracy reaches this
# patience = 20           # stop once this many rounds have brought no better accuracy
# checkpoint_seconds = 10 # how much work a crash may cost

[data]
name = "digits"           # 1,797 digits of 8x8 pixels that come with scikit-learn
# name = "mnist"          # 70,000 digits of 28x28, from the folder that FEDQUILT_DATA names

[partition]
name = "dirichlet"        # who holds what: each client's classes are drawn from a Dirichlet distribution
clients = 50
alpha = 0.5               # small: few classes per client; large: all clients alike
seed = 1                  # of the population, apart from the training's

[model]
name = "mnist_2nn"        # two hidden layers of 200; or your own: "my_module:MyNet"

[method]
name = "fed_avg_m"        # federated averaging with server momentum
lr = 0.1                  # the clients' learning rate
fraction = 0.2            # C: share of the clients in a round
epochs = 1                # E: passes over a client's data
batch = 10                # B: examples per step; inf uses all at once
server_momentum = 0.9
# lr = {{ initial = 0.1, factor = 0.99 }}   # a value that changes over rounds

# [[wrap]]                # changes the method; as many as you like, the first is applied first
# name = "fed_prox"
# mu = 0.01

# [[simulate]]            # who shows up, and how faithfully; as many as you like
# name = "dropout"
# probability = 0.1

# [engine]                # how clients are trained; unless given, the fastest way for this run is chosen
# name = "inline"         # one after the other in one process, for debugging
"""
