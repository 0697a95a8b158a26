// What lockstep.optim is made of. The classes with PyTorch's arguments are in lockstep/optim/.
#include "optimizers.h"

#include "bindings.h"
#include "callbacks.h"

namespace lockstep::python {
namespace {

using Group = std::tuple<std::vector<Parameter>, double, double>;  // parameters, lr, weight decay

ParameterGroups groups_of(const std::vector<Group>& all) {
  if (all.size() == 1) return ParameterGroups(std::get<0>(all[0]));
  std::vector<ParameterGroup> groups;
  for (const auto& [parameters, lr, weight_decay] : all)
    groups.push_back({.parameters = parameters, .lr = lr, .weight_decay = weight_decay});
  return groups;
}

// Groups have rates of their own beside one above 0.
double rate_of(const std::vector<Group>& all) {
  double lr = all.empty() ? 0 : std::get<1>(all[0]);
  for (const Group& group : all)
    if (lr == 0) lr = std::get<1>(group);
  return lr == 0 && all.size() > 1 ? 1 : lr;
}

template <typename M>
void add_optimizer(py::module_& m, const char* name, auto make, const auto&... names) {
  py::class_<M, Optimizer> c(m, name);
  c.def(py::init(make), "groups"_a, names...);
}

}  // namespace

void add_optimizers(py::module_& m) {
  py::class_<Optimizer> optimizer(m, "OptimizerEngine", "An optimizer of the library.");
  optimizer.def("step", &Optimizer::step, released());
  optimizer.def("zero_grad", &Optimizer::zero_grad, released());
  optimizer.def("steps", &Optimizer::steps);
  optimizer.def("clip_grad_norm", &Optimizer::clip_grad_norm, "max_norm"_a, released());
  optimizer.def("clip_grad_value", &Optimizer::clip_grad_value, "limit"_a, released());
  optimizer.def("learning_rate", [](const Optimizer& o, std::size_t group) { return o.learning_rate(group); });
  optimizer.def("set_learning_rates", [](Optimizer& o, const std::vector<double>& rates) {
    check(rates.size() == o.group_count(), "optimizer: {} rates, expected {}", rates.size(), o.group_count());
    if (rates.size() == 1) {
      if (rates[0] != o.learning_rate(0)) o.set_scheduled_learning_rate(rates[0]);
      return;
    }
    for (std::size_t i = 0; i < rates.size(); ++i)
      if (rates[i] != o.learning_rate(i)) o.set_learning_rate(i, rates[i]);
  });
  optimizer.def("state_dict", &Optimizer::state_dict, released());
  optimizer.def(
      "load_state_dict", [](Optimizer& o, const StateDict& state) { o.load_state_dict(state); }, "state"_a, released());
  optimizer.def("rule", [](const Optimizer& o) { return o.rule().name; });

  add_optimizer<Sgd>(
      m, "SgdEngine",
      [](const std::vector<Group>& groups, double momentum, double dampening, bool nesterov) {
        return new Sgd(groups_of(groups), {.lr = rate_of(groups),
                                           .momentum = momentum,
                                           .weight_decay = std::get<2>(groups.at(0)),
                                           .nesterov = nesterov,
                                           .dampening = dampening});
      },
      "momentum"_a, "dampening"_a, "nesterov"_a);
  add_optimizer<Adam>(
      m, "AdamEngine",
      [](const std::vector<Group>& groups, std::pair<double, double> betas, double eps, bool amsgrad, bool decoupled) {
        return new Adam(groups_of(groups), {.lr = rate_of(groups),
                                            .beta1 = betas.first,
                                            .beta2 = betas.second,
                                            .eps = eps,
                                            .weight_decay = std::get<2>(groups.at(0)),
                                            .decoupled_weight_decay = decoupled,
                                            .amsgrad = amsgrad});
      },
      "betas"_a, "eps"_a, "amsgrad"_a, "decoupled"_a);
  add_optimizer<RMSprop>(
      m, "RMSpropEngine",
      [](const std::vector<Group>& groups, double alpha, double eps, double momentum, bool centered) {
        return new RMSprop(groups_of(groups), {.lr = rate_of(groups),
                                               .alpha = alpha,
                                               .eps = eps,
                                               .weight_decay = std::get<2>(groups.at(0)),
                                               .momentum = momentum,
                                               .centered = centered});
      },
      "alpha"_a, "eps"_a, "momentum"_a, "centered"_a);
  add_optimizer<Adagrad>(
      m, "AdagradEngine",
      [](const std::vector<Group>& groups, double lr_decay, double eps) {
        return new Adagrad(
            groups_of(groups),
            {.lr = rate_of(groups), .lr_decay = lr_decay, .eps = eps, .weight_decay = std::get<2>(groups.at(0))});
      },
      "lr_decay"_a, "eps"_a);
  add_optimizer<Adadelta>(
      m, "AdadeltaEngine",
      [](const std::vector<Group>& groups, double rho, double eps) {
        return new Adadelta(groups_of(groups),
                            {.lr = rate_of(groups), .rho = rho, .eps = eps, .weight_decay = std::get<2>(groups.at(0))});
      },
      "rho"_a, "eps"_a);

  py::class_<LBFGS> lbfgs(m, "LBFGSEngine");
  lbfgs.def(py::init([](std::vector<Parameter> parameters, double lr, int max_iter, std::optional<int> max_eval,
                        double tolerance_grad, double tolerance_change, int history_size,
                        const std::optional<std::string>& line_search) {
              check(!line_search || *line_search == "strong_wolfe",
                    "lbfgs: line_search_fn '{}', expected None or 'strong_wolfe'", line_search.value_or(""));
              return new LBFGS(std::move(parameters),
                               {.lr = lr,
                                .max_iter = max_iter,
                                .max_eval = max_eval,
                                .tolerance_grad = tolerance_grad,
                                .tolerance_change = tolerance_change,
                                .history_size = history_size,
                                .line_search = line_search ? LineSearch::strong_wolfe : LineSearch::none});
            }),
            "parameters"_a, "lr"_a, "max_iter"_a, "max_eval"_a, "tolerance_grad"_a, "tolerance_change"_a,
            "history_size"_a, "line_search_fn"_a);
  // Returns what the closure returned first.
  lbfgs.def("step", [](LBFGS& self, const py::function& closure) {
    py::object first;
    const auto call = [&closure, &first] {
      const WithLock lock;
      const py::object loss = closure();
      if (!first) first = loss;
      Scalar number;
      if (!read_number(loss, number)) return returned_as<Tensor>("closure", loss, "a tensor or a number");
      Tensor value = Tensor::host({}, DType::f64);
      *value.data_ptr<double>() = number.to<double>();
      return value;
    };
    {
      const WithoutLock stepping;
      self.step(call);
    }
    return first;
  });
  lbfgs.def("zero_grad", &LBFGS::zero_grad);
}

}  // namespace lockstep::python
