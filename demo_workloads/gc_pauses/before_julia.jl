# Train a small network with every sample described by a record in memory, and tidy up each step.
#
# Run: julia demo_workloads/gc_pauses/before_julia.jl --seconds 20

using LinearAlgebra, Printf, Random

const SEED = 1
const SAMPLES, FEATURES, HIDDEN, CLASSES = 20_000, 256, 3584, 10
const BATCH = 256
const WARM = 20

# What many data sets keep of each sample: small objects, and very many of them.
describe(index) = Dict("path" => "images/$index.jpg", "label" => index % CLASSES, "box" => [0, 0, index % 640, 480])

function gradients(weights, x, y)
    hidden = max.(weights[1] * x, 0.0f0)
    scores = weights[2] * hidden
    chances = exp.(scores .- maximum(scores, dims=1))
    chances ./= sum(chances, dims=1)
    back = (chances .- y) ./ BATCH
    backward = (weights[2]' * back) .* (hidden .> 0)
    return [backward * x', back * hidden']
end

function train(seconds, steps)
    Random.seed!(SEED)
    BLAS.set_num_threads(1)
    records = [describe(index) for index in 1:SAMPLES]
    data = randn(Float32, FEATURES, SAMPLES)
    weights = [0.03f0 * randn(Float32, HIDDEN, FEATURES), 0.03f0 * randn(Float32, CLASSES, HIDDEN)]
    done, took, began = 0, 0.0, time()
    while true
        chosen = rand(1:SAMPLES, BATCH)
        labels = [Float32(records[index]["label"] == class - 1) for class in 1:CLASSES, index in chosen]
        for (weight, gradient) in zip(weights, gradients(weights, data[:, chosen], labels))
            weight .-= 0.01f0 .* gradient
        end
        GC.gc()  # to keep the memory small
        done += 1
        done == WARM && (began = time())
        took = time() - began
        (done - WARM >= steps || (done > WARM && took > seconds)) && break
    end
    done -= WARM
    @printf("%d steps, %.3f ms a step, %.0f samples/s\n", done, 1000 * took / done, BATCH * done / took)
end

option(name, usual) = (at = findfirst(==(name), ARGS); at === nothing ? usual : parse(typeof(usual), ARGS[at + 1]))
train(option("--seconds", 20.0), option("--steps", 10^9))
