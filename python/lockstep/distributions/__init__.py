"""Random distributions, under the names of torch.distributions.

>>> policy = distributions.Categorical(logits=net(state))
>>> action = policy.sample()
>>> loss = -policy.log_prob(action) * reward

sample() draws from the stream of manual_seed(). rsample() has gradients with respect to the parameters.
"""

from .bernoulli import Bernoulli  # noqa: F401
from .categorical import Categorical  # noqa: F401
from .distribution import Distribution  # noqa: F401
from .exponential import Exponential  # noqa: F401
from .independent import Independent  # noqa: F401
from .kl import kl_divergence, register_kl  # noqa: F401
from .laplace import Laplace  # noqa: F401
from .normal import Normal  # noqa: F401
from .uniform import Uniform  # noqa: F401
