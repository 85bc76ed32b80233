# What `monitor run -- julia script.jl` loads before the script: a mark for the end of a step.
#
#     isdefined(Main, :WhyIdle) && WhyIdle.step()     # at the end of each turn of the loop
#     WhyIdle.@step train!(model, batch)              # or around what is a step
#
# How long steps took goes to the spool of agents/wire.py, a line a second at most. There is no task or
# timer: in a loop that computes none would come to run. Nothing here may raise, print or wait.
module WhyIdle

const MOST_DURATIONS = 64     # as in agents/wire.py
const SECOND = UInt64(1_000_000_000)
const MOST_BYTES = 16 << 20   # of a file that nobody empties

mutable struct State
    file::Union{IOStream,Nothing}
    last::UInt64              # when the last step ended; 0: none has
    told::UInt64
    written::Int
    count::Int
    durations::Vector{UInt64}
end

const STATE = State(nothing, 0, 0, 0, 0, UInt64[])
const LOCK = ReentrantLock()

const KINDS, FOLDER = 0xf000, 0x4000  # of files, by their mode (stat.h)

function __init__()
    # Only where it was loaded for the monitor, in the process that it started.
    try
        user = ccall(:getuid, Cuint, ())
        folder = "/tmp/whyidle-$user"
        ispath(folder) || mkdir(folder, mode = 0o700)
        found = lstat(folder)
        fits = found.mode & KINDS == FOLDER && found.uid == user && found.mode & 0o077 == 0
        fits || return
        path = joinpath(folder, "$(getpid()).spool")
        STATE.file = open(path, "w")
        atexit(() -> finish(path))
    catch
        STATE.file = nothing
    end
end

"Say that a step has ended."
function step()
    STATE.file === nothing && return nothing
    lock(LOCK)
    try
        now = time_ns()
        STATE.last == 0 ? (STATE.told = now) : note(now - STATE.last)
        STATE.last = now
        now - STATE.told >= SECOND && tell(now)
    catch error
        STATE.file = nothing
        # Ctrl-C is the user's.
        error isa InterruptException && rethrow()
    finally
        unlock(LOCK)
    end
    return nothing
end

"Run an expression, and say that it was a step."
macro step(expression)
    return quote
        result = $(esc(expression))
        $step()
        result
    end
end

function finish(path)
    try
        STATE.count > 0 && STATE.file !== nothing && tell(time_ns())
    catch
    end
    # A monitor that reads it has it open.
    try rm(path, force = true) catch end
end

function note(took)
    STATE.count += 1
    # Of very many the first stand for all of this second.
    length(STATE.durations) < 100_000 && push!(STATE.durations, took)
end

function tell(now)
    sort!(STATE.durations)
    many = length(STATE.durations)
    few = min(many, MOST_DURATIONS)
    picked = [STATE.durations[1 + div((i - 1) * many, few)] for i in 1:few]
    line = string("[\"steps\",", now, ",\"whyidle.step\",", now - STATE.told, ",", STATE.count,
        ",[", join(picked, ","), "]]\n")
    STATE.written += sizeof(line)
    if STATE.written > MOST_BYTES
        STATE.file = nothing
        return
    end
    write(STATE.file, line)
    flush(STATE.file)
    empty!(STATE.durations)
    STATE.count, STATE.told = 0, now
end

end
