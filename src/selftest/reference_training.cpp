#include "selftest/reference_training.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace loratrain {

namespace {

constexpr double difference_step = 1e-5;

HostMatrix rms_normalized(const HostMatrix& x, const std::vector<double>& weight, double eps) {
    HostMatrix y = x;
    for (std::int64_t row = 0; row < x.rows; ++row) {
        double squares = 0.0;
        for (std::int64_t j = 0; j < x.cols; ++j) squares += x(row, j) * x(row, j);
        const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(x.cols) + eps);
        for (std::int64_t j = 0; j < x.cols; ++j) {
            y(row, j) *= inverse * weight[static_cast<std::size_t>(j)];
        }
    }
    return y;
}

/// Pairs j, j + D/2 of every head; the angle rounded to fp32, as Hugging Face has it.
void rotate(HostMatrix& x, std::int64_t head_dim, double theta) {
    const std::int64_t half = head_dim / 2;
    for (std::int64_t row = 0; row < x.rows; ++row) {
        for (std::int64_t col = 0; col < x.cols; col += head_dim) {
            for (std::int64_t j = 0; j < half; ++j) {
                const auto frequency = static_cast<float>(
                    std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(head_dim)));
                const double angle = static_cast<float>(row) * frequency;
                const double low = x(row, col + j);
                const double high = x(row, col + j + half);
                x(row, col + j) = low * std::cos(angle) - high * std::sin(angle);
                x(row, col + j + half) = high * std::cos(angle) + low * std::sin(angle);
            }
        }
    }
}

/// One query row of one head.
void attend_row(const ModelSpec& spec, const HostMatrix& q, const HostMatrix& k,
                const HostMatrix& v, std::int64_t row, std::int64_t head, HostMatrix& o) {
    const std::int64_t dim = spec.attention().head_dim;
    const std::int64_t first_q = head * dim;
    const std::int64_t first_k = head / (spec.attention().heads / spec.attention().kv_heads) * dim;
    std::vector<double> weights;
    for (std::int64_t key = 0; key <= row; ++key) {
        double score = 0.0;
        for (std::int64_t j = 0; j < dim; ++j) score += q(row, first_q + j) * k(key, first_k + j);
        weights.push_back(score / std::sqrt(static_cast<double>(dim)));
    }
    const double largest = *std::max_element(weights.begin(), weights.end());
    double sum = 0.0;
    for (double& weight : weights) sum += weight = std::exp(weight - largest);
    for (std::int64_t key = 0; key <= row; ++key) {
        const double share = weights[static_cast<std::size_t>(key)] / sum;
        for (std::int64_t j = 0; j < dim; ++j) o(row, first_q + j) += share * v(key, first_k + j);
    }
}

HostMatrix attended(const ModelSpec& spec, const HostMatrix& q, const HostMatrix& k,
                    const HostMatrix& v) {
    HostMatrix o(q.rows, q.cols);
    for (std::int64_t row = 0; row < q.rows; ++row) {
        for (std::int64_t head = 0; head < spec.attention().heads; ++head) {
            attend_row(spec, q, k, v, row, head, o);
        }
    }
    return o;
}

class Forward {
  public:
    Forward(const TinyModel& model, const TinyAdapter& adapter)
        : model_(model), adapter_(adapter) {}

    HostMatrix logits(const std::vector<std::int64_t>& tokens) const {
        HostMatrix x(static_cast<std::int64_t>(tokens.size()), model_.embedding.cols);
        for (std::int64_t row = 0; row < x.rows; ++row) {
            for (std::int64_t j = 0; j < x.cols; ++j) {
                x(row, j) = model_.embedding(tokens[static_cast<std::size_t>(row)], j);
            }
        }
        for (std::int64_t layer = 0; layer < model_.spec.layers; ++layer) add_layer(layer, x);
        return times_transposed(rms_normalized(x, model_.final_norm, model_.spec.rms_norm_eps),
                                model_.head);
    }

  private:
    HostMatrix linear(std::int64_t layer, Linear which, const HostMatrix& x) const {
        const auto& linears = model_.layers[static_cast<std::size_t>(layer)].linears;
        HostMatrix y = times_transposed(x, linears[static_cast<int>(which)]);
        for (const TinyFactors& factors : adapter_.factors) {
            if (factors.layer != layer || factors.linear != which) continue;
            add_scaled(y, times_transposed(times_transposed(x, factors.a), factors.b),
                       adapter_.scale());
        }
        return y;
    }

    void add_layer(std::int64_t layer, HostMatrix& x) const {
        const ModelSpec& spec = model_.spec;
        const TinyModel::Layer& weights = model_.layers[static_cast<std::size_t>(layer)];
        const HostMatrix input = rms_normalized(x, weights.input_norm, spec.rms_norm_eps);
        HostMatrix q = linear(layer, Linear::q, input);
        HostMatrix k = linear(layer, Linear::k, input);
        rotate(q, spec.attention().head_dim, spec.attention().rope->theta);
        rotate(k, spec.attention().head_dim, spec.attention().rope->theta);
        const HostMatrix o = attended(spec, q, k, linear(layer, Linear::v, input));
        add_scaled(x, linear(layer, Linear::o, o), 1.0);
        const HostMatrix after = rms_normalized(x, weights.post_attention_norm, spec.rms_norm_eps);
        HostMatrix h = linear(layer, Linear::gate, after);
        const HostMatrix up = linear(layer, Linear::up, after);
        for (std::size_t i = 0; i < h.values.size(); ++i) {
            h.values[i] *= up.values[i] / (1.0 + std::exp(-h.values[i]));
        }
        add_scaled(x, linear(layer, Linear::down, h), 1.0);
    }

    const TinyModel& model_;
    const TinyAdapter& adapter_;
};

/// -log of the target's probability.
double token_loss(const HostMatrix& logits, std::int64_t row, std::int64_t target) {
    double largest = logits(row, 0);
    for (std::int64_t j = 1; j < logits.cols; ++j) largest = std::max(largest, logits(row, j));
    double sum = 0.0;
    for (std::int64_t j = 0; j < logits.cols; ++j) sum += std::exp(logits(row, j) - largest);
    return largest + std::log(sum) - logits(row, target);
}

std::vector<double*> parameters_of(TinyAdapter& adapter) {
    std::vector<double*> all;
    for (TinyFactors& factors : adapter.factors) {
        for (double& value : factors.a.values) all.push_back(&value);
        for (double& value : factors.b.values) all.push_back(&value);
    }
    return all;
}

std::vector<double> gradients(const TinyModel& model, const std::vector<TinySample>& samples,
                              TinyAdapter& adapter) {
    std::vector<double> result;
    for (double* parameter : parameters_of(adapter)) {
        const double here = *parameter;
        *parameter = here + difference_step;
        const double above = reference_loss(model, adapter, samples);
        *parameter = here - difference_step;
        const double below = reference_loss(model, adapter, samples);
        *parameter = here;
        result.push_back((above - below) / (2.0 * difference_step));
    }
    return result;
}

/// A parameter with AdamW's state.
struct Moments {
    double* parameter;
    double first;
    double second;
};

void take_step(const TinyTraining& training, int step, double gradient, Moments& of) {
    of.first = training.beta1 * of.first + (1.0 - training.beta1) * gradient;
    of.second = training.beta2 * of.second + (1.0 - training.beta2) * gradient * gradient;
    const double mean = of.first / (1.0 - std::pow(training.beta1, step));
    const double root = std::sqrt(of.second / (1.0 - std::pow(training.beta2, step)));
    *of.parameter -= training.learning_rate *
                     (training.weight_decay * *of.parameter + mean / (root + training.epsilon));
}

}  // namespace

double reference_loss(const TinyModel& model, const TinyAdapter& adapter,
                      const std::vector<TinySample>& samples) {
    const Forward forward(model, adapter);
    double sum = 0.0;
    std::int64_t targets = 0;
    for (const TinySample& sample : samples) {
        const HostMatrix logits = forward.logits(sample.tokens);
        for (std::size_t i = 1; i < sample.labels.size(); ++i) {
            if (sample.labels[i] < 0) continue;
            sum += token_loss(logits, static_cast<std::int64_t>(i) - 1, sample.labels[i]);
            ++targets;
        }
    }
    return sum / static_cast<double>(targets);
}

ReferenceCurve train_reference(const TinyModel& model, const TinyTraining& training,
                               const std::vector<TinySample>& samples, TinyAdapter& adapter) {
    std::vector<Moments> parameters;
    for (double* parameter : parameters_of(adapter)) parameters.push_back({parameter, 0.0, 0.0});
    ReferenceCurve curve;
    for (int step = 1; step <= training.steps; ++step) {
        curve.losses.push_back(reference_loss(model, adapter, samples));
        const std::vector<double> gradient = gradients(model, samples, adapter);
        const double norm =
            std::sqrt(std::inner_product(gradient.begin(), gradient.end(), gradient.begin(), 0.0));
        curve.grad_norms.push_back(norm);
        const double clip = std::min(1.0, training.max_grad_norm / (norm + 1e-6));
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            take_step(training, step, gradient[i] * clip, parameters[i]);
        }
    }
    return curve;
}

}  // namespace loratrain
