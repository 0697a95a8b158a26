// Base of lockstep.optim. The classes with PyTorch's arguments are in lockstep/optim/.
#include "optimizers.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "callbacks.h"

namespace lockstep::python {
namespace {

using NamedNumbers = std::map<std::string, double>;
using Group = std::pair<std::vector<Parameter>, NamedNumbers>;  // lr, weight_decay, and the options of the rule

OptimizerOptions of_rule(const NamedNumbers& options) {
  OptimizerOptions rest;
  for (const auto& [name, value] : options)
    if (name != "lr" && name != "weight_decay") rest.emplace_back(name, value);
  return rest;
}

// Returns the optimizer's rate: the first one above 0. Groups with rates of their own need one above 0: else 1.
double rate_of(const std::vector<Group>& all) {
  double lr = 0;
  for (const auto& [parameters, options] : all)
    if (lr == 0) lr = options.at("lr");
  return lr == 0 && all.size() > 1 ? 1 : lr;
}

// Sets only the rate and the weight decay that differ from the optimizer's.
ParameterGroup group_of(const Group& group, double lr, double weight_decay) {
  const auto& [parameters, options] = group;
  const auto own = [](double value, double usual) { return value == usual ? std::nullopt : std::optional(value); };
  return {.parameters = parameters,
          .lr = own(options.at("lr"), lr),
          .weight_decay = own(options.at("weight_decay"), weight_decay)};
}

// `plain`: options of the constructor with the rule's defaults.
template <typename M, typename PlainOptions>
std::unique_ptr<M> made(const std::vector<Group>& all, PlainOptions plain) {
  check(!all.empty(), "optimizer: no groups");
  const double lr = rate_of(all);
  plain.lr = lr;
  plain.weight_decay = all[0].second.at("weight_decay");
  std::vector<ParameterGroup> groups;
  std::vector<OptimizerOptions> options;
  for (const Group& group : all) {
    groups.push_back(group_of(group, lr, plain.weight_decay));
    options.push_back(of_rule(group.second));
  }
  auto optimizer = std::make_unique<M>(groups, plain);
  optimizer->set_options(options);
  return optimizer;
}

template <typename M, typename PlainOptions>
void add_optimizer(py::module_& m, const char* name, const PlainOptions& plain) {
  py::class_<M, Optimizer> c(m, name);
  c.def(py::init([plain](const std::vector<Group>& groups) { return made<M>(groups, plain); }), "groups"_a);
  // Throws if the constructor or set_options() would.
  c.def_static(
      "check",
      [plain](const NamedNumbers& options) {
        made<M>({{{Parameter(ParameterOptions{.shape = {1}})}, options}}, plain);
      },
      "options"_a);
}

}  // namespace

void add_optimizers(py::module_& m) {
  py::class_<Optimizer> optimizer(m, "OptimizerEngine", "An optimizer of the library.");
  optimizer.def("step", &Optimizer::step, released());
  optimizer.def("zero_grad", &Optimizer::zero_grad, released());
  optimizer.def("steps", &Optimizer::steps);
  optimizer.def("clip_grad_norm", &Optimizer::clip_grad_norm, "max_norm"_a, released());
  optimizer.def("clip_grad_value", &Optimizer::clip_grad_value, "limit"_a, released());
  optimizer.def("learning_rates", [](const Optimizer& o) {
    std::vector<double> rates;
    for (std::size_t group = 0; group < o.group_count(); ++group) rates.push_back(o.learning_rate(group));
    return rates;
  });
  optimizer.def(
      "set_options",
      [](Optimizer& o, const std::vector<NamedNumbers>& changed) {
        std::vector<OptimizerOptions> options;
        for (const NamedNumbers& group : changed) options.emplace_back(group.begin(), group.end());
        o.set_options(options);
      },
      "changed"_a, "Change the given options of each group.");
  optimizer.def(
      "add_group",
      [](Optimizer& o, const Group& group) {
        ParameterGroup added = group_of(group, -1, -1);
        added.options = of_rule(group.second);
        o.add_group(added);
      },
      "group"_a);
  optimizer.def("parameter_names", [](const Optimizer& o) {
    std::vector<std::string> names;
    for (const Parameter& p : o.parameters()) names.push_back(p.name());
    return names;
  });
  optimizer.def("state_dict", &Optimizer::state_dict, released());
  optimizer.def(
      "load_state_dict", [](Optimizer& o, const StateDict& state) { o.load_state_dict(state); }, "state"_a, released());
  optimizer.def(
      "check_state_dict", [](const Optimizer& o, const StateDict& state) { o.check_state_dict(state); }, "state"_a,
      released());
  optimizer.def("rule", [](const Optimizer& o) { return o.rule().name; });

  add_optimizer<Sgd>(m, "SgdEngine", SgdOptions());
  add_optimizer<Adam>(m, "AdamEngine", AdamOptions());
  add_optimizer<AdamW>(m, "AdamWEngine", AdamWOptions());
  add_optimizer<RMSprop>(m, "RMSpropEngine", RMSpropOptions());
  add_optimizer<Adagrad>(m, "AdagradEngine", AdagradOptions());
  add_optimizer<Adadelta>(m, "AdadeltaEngine", AdadeltaOptions());

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
  // Returns the first result of the closure.
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
